"""Support that no circuit needs: the cache of builds, other programs."""
