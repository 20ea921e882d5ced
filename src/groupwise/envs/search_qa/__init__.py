"""Questions over documents."""
