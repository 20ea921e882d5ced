"""A long campaign of faults: kills, damaged files, wrong settings, unruly environments, full disks, hostile answers."""
