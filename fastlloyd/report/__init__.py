"""What a run leaves behind: report, tables, plots, pages, progress. Released and public values only."""
