"""A REFERENCE sidecar and frontend for direct native-gRPC dispatch, which no released Dynamo has (1.6.1 is the last).

They are not Dynamo. They implement its public contract, as the docs and sources of its branch tell it, far enough that
a launch with direct dispatch, and the check of it, run end to end: a sidecar advertises its engine's gRPC server in
its model card; the frontend connects to each advertising engine when the membership changes, drops it when the worker
departs or moves, tries a failed connect again on the next change, and releases a request's booking before its error
propagates; every other worker is reached through its sidecar. Discovery, `nvext`, `/metrics` and the log lines look
as Dynamo's do, because the checks read those. Aggregated vLLM workers only, and the tokenizer of the simulated model.
"""
