"""The messages of `openengine.v1`: what Dynamo 1.6.1 speaks, and the discovery and lifecycle around it.

Source: the public schema `ai-dynamo/openengine` (proto/openengine/v1), revision 1, with the two handoff fields that its
later revisions add to `KvConnectorInfo` (10) and `KvSessionRef` (6). What no simulator uses is left out: a field that is
not here arrives as an unknown one and is ignored, as protobuf has it.
"""

from __future__ import annotations

from srtctl.sim.protobuf import Messages, build

INFERENCE, CONTROL = "openengine.v1.Inference", "openengine.v1.Control"
REVISION, MINIMUM_CLIENT_REVISION = 1, 1
#: An immutable release of the schema: the module commit to which its tag v0.1.0 maps.
RELEASE = "768a93c7b44e40f28c692ad0b471a8f2"
TARGET_DP_RANK = "openengine-target-dp-rank"
"""gRPC metadata key of the DP rank that a request wants."""

ROLES = {"agg": 1, "prefill": 2, "decode": 3}
FINISH = {"stop": 1, "length": 2, "cancelled": 3}
ERRORS = {
    "INVALID_ARGUMENT": 1,
    "KV_SESSION_NOT_FOUND": 8,
    "KV_TRANSFER_FAILED": 9,
    "CANCELLED": 10,
    "INTERNAL": 12,
}
ABORTED, ALREADY_FINISHED = 1, 2
READY, DRAINING, NOT_READY = 2, 4, 5
DRAIN_STARTED, DRAIN_IN_PROGRESS, DRAIN_COMPLETE = 1, 2, 3

_MESSAGES = build(
    "openengine.v1",
    {
        "GetServerInfoRequest": (),
        "ServerInfo": (
            *("1 string engine_name", "2 string engine_version", "3 EngineRole engine_role", "4 string instance_id"),
            *("5 *string supported_models", "6 ParallelismInfo parallelism", "7 KvConnectorInfo kv_connector"),
            *("8 uint32 schema_revision", "9 uint32 minimum_client_revision", "10 string schema_release"),
            "11 DeploymentCapacity capacity",
        ),
        "ParallelismInfo": (
            *("1 ?uint32 tensor_parallel_size", "2 ?uint32 pipeline_parallel_size", "3 ?uint32 data_parallel_size"),
            *("4 ?uint32 data_parallel_rank", "5 ?uint32 data_parallel_start_rank"),
        ),
        "DeploymentCapacity": ("1 ?uint32 kv_block_size", "2 ?uint64 total_kv_blocks", "5 ?uint32 max_loras"),
        "KvConnectorInfo": (
            *("1 ?bool enabled", "2 string transfer_backend", "3 *KvEndpoint local_endpoints"),
            *("4 *string supported_protocols", "8 ?bool supports_drain", "10 string handoff_profile"),
            "11 ?bool supports_client_bootstrap",
        ),
        "GetModelInfoRequest": ("1 string model",),
        "ModelInfo": (
            *("1 string model_id", "2 string served_model_name", "3 *string served_model_aliases"),
            *("4 ?uint32 max_context_length", "5 ?uint32 max_output_tokens", "20 ?bool supports_text_input"),
            *("21 ?bool supports_token_ids_input", "23 ?bool supports_lora", "24 ?bool supports_multimodal"),
        ),
        "HealthRequest": ("1 bool include_inference_probe",),
        "HealthResponse": ("1 int32 state",),
        "GetKvEventSourcesRequest": ("1 *uint32 data_parallel_ranks",),
        "GetKvEventSourcesResponse": ("1 *KvEventSource sources",),
        "KvEventSource": (
            *("1 string transport", "2 KvEndpoint endpoint_addr", "3 string topic", "5 ?uint32 data_parallel_rank"),
            "6 string encoding",
        ),
        "AbortRequest": (
            *("1 oneof:target:string request_id", "2 oneof:target:KvSessionRef kv_session"),
            "3 oneof:target:AllRequests all_requests",
        ),
        "AllRequests": (),
        "AbortResponse": ("1 int32 status", "2 string message"),
        "DrainRequest": (
            *("1 bool stop_accepting_new_requests", "2 ?uint32 deadline_ms", "3 bool abort_after_deadline"),
        ),
        "DrainResponse": (
            *("1 oneof:event:DrainState state", "5 oneof:event:EngineError error", "2 ?uint32 in_flight_requests"),
            *("3 ?uint32 open_kv_sessions", "4 string message"),
        ),
        "GenerateRequest": (
            *(
                "1 string request_id",
                "2 string model",
                "3 oneof:input:string prompt",
                "4 oneof:input:TokenIds token_ids",
            ),
            *("6 StoppingOptions stopping", "8 KvOptions kv", "10 *MediaItem media", "11 string lora_name"),
            "12 Struct extra",
        ),
        "TokenIds": ("1 *uint32 ids",),
        "StoppingOptions": ("1 ?uint32 max_tokens", "2 ?uint32 min_tokens", "4 ?bool ignore_eos"),
        "KvOptions": ("1 KvSessionRef session",),
        "MediaItem": ("1 int32 modality", "2 oneof:source:string url"),
        "KvSessionRef": (
            *("1 string session_id", "2 string transfer_backend", "3 *KvEndpoint endpoints", "4 uint32 dp_rank"),
            *("5 Struct attributes_struct", "6 string handoff_profile"),
        ),
        "KvEndpoint": ("1 string host", "2 uint32 port", "3 string protocol"),
        "GenerateResponse": (
            *("1 string request_id", "3 oneof:event:TokenOutput token", "4 oneof:event:PrefillReady prefill_ready"),
            *("5 oneof:event:GenerationFinished finished", "6 oneof:event:EngineError error", "10 Usage usage"),
        ),
        "TokenOutput": ("1 ?uint32 output_index", "2 *TokenInfo tokens", "3 string text"),
        "TokenInfo": ("1 uint32 token_id",),
        "PrefillReady": ("1 KvSessionRef kv_session",),
        "GenerationFinished": ("1 ?uint32 output_index", "2 FinishReason reason", "3 string message"),
        "EngineError": ("1 ErrorCode code", "2 string message", "3 bool retryable"),
        "Usage": (
            *("1 uint32 prompt_tokens", "2 uint32 completion_tokens", "3 uint32 total_tokens"),
            "4 ?uint32 cached_prompt_tokens",
        ),
    },
    {
        "EngineRole": {"ENGINE_ROLE_UNSPECIFIED": 0} | {f"ENGINE_ROLE_{n.upper()}": v for n, v in ROLES.items()},
        "FinishReason": {"FINISH_REASON_UNSPECIFIED": 0} | {f"FINISH_REASON_{n.upper()}": v for n, v in FINISH.items()},
        "ErrorCode": {"ERROR_CODE_UNSPECIFIED": 0} | {f"ERROR_CODE_{name}": v for name, v in ERRORS.items()},
        "DrainState": {
            "DRAIN_STATE_UNSPECIFIED": 0,
            "DRAIN_STATE_STARTED": DRAIN_STARTED,
            "DRAIN_STATE_IN_PROGRESS": DRAIN_IN_PROGRESS,
            "DRAIN_STATE_COMPLETE": DRAIN_COMPLETE,
        },
    },
)

#: By name; the two answers that are not called `…Response` also under that name.
MESSAGES: Messages = {
    **_MESSAGES,
    "GetServerInfoResponse": _MESSAGES["ServerInfo"],
    "GetModelInfoResponse": _MESSAGES["ModelInfo"],
}
