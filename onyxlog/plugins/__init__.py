"""Where segments come from and go to; each module one medium. What a plugin is: `onyxlog.plugins.plugin`."""
