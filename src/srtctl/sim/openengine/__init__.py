"""OpenEngine (`openengine.v1`), the engine-neutral gRPC protocol: one server for every simulated engine."""
