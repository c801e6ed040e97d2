"""The vertical HE paper's tables and figures."""
