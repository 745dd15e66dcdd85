"""An audit's findings for people and programs: a table on the terminal, Parquet and JSON, an HTML page with plots."""
