"""Readers of forms that older releases wrote, and this one no longer writes.

A reader turns the plain values of an old form into those of today's, so that whoever reads today's form needs to know no
other. Each module says which releases wrote the form, and `LEVEL_MIN_WITHOUT`: with the first release whose
`zraft.config.features.FEATURE_LEVEL_MIN` is as high, the module goes. What is written in an old form until the feature
level is raised is no old form: it stays where it is written.
"""
