"""Commands for znodes: `zraft get`, `put`, `ls`, `rm`, `watch` and `lock`."""
