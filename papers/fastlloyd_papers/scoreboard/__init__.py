"""The scoreboard: each paper's tables, figures and claims beside what the committed results say."""
