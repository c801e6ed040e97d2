"""SecFC's tables and figures, and what attacks recover."""
