"""Stands in for `dynamo.frontend` in the image whose Dynamo has direct dispatch: starts the reference frontend."""
