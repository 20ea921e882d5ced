"""WebShop over the publisher's files, and a shop of our own in its manner."""
