"""What all benchmarks need: cells, runner, machine, tables, and the list of benchmarks."""
