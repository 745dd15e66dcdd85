"""The commands of `zraft`. What a command needs beyond the command line is imported when it runs."""
