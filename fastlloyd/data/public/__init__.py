"""Public data sets: embedded, in a folder, downloaded, or generated."""
