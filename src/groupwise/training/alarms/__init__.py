"""Alarms: what a run is watched for while it learns, in a sentence each; one may stop the run."""
