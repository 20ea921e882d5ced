"""A long campaign of faults: kills, damaged files, wrong run files, unruly environments, full disks, hostile answers."""
