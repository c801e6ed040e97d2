"""`fastlloyd run`: starts the ranks, watches them, and says what became of them."""
