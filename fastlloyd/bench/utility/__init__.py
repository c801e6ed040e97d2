"""Error against epsilon: data, measures and reports shared by FastLloyd's utility figures."""
