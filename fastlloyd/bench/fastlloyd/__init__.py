"""FastLloyd's tables and figures, and what goes beyond the paper."""
