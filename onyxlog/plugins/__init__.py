"""Where segments come from and go to, one module for each medium. `onyxlog.plugins.plugin` says what a plugin is."""
