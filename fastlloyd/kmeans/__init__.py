"""Assignment and update kernels, starts and metrics: no privacy, no messages, no files."""
