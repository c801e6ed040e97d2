"""The vertical DP paper's tables and figures."""
