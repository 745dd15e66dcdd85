"""Results as a page with tables and plots."""
