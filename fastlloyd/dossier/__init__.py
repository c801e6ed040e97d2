"""What a site is told before a run, and what it signs: the dossier for its officers, and its approval."""
