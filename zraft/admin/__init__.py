"""The admin HTTP server: status values as JSON, Prometheus samples and a page (pure), and aiohttp around them."""
