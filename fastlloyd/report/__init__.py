"""What a run leaves behind: report, tables, plots, progress. Released and public values only."""
