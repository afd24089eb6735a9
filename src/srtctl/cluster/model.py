"""The cluster profile (`srtslurm.yaml`): what is true of one cluster, whichever recipe runs there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from srtctl.reading.mounts import Mounts
from srtctl.reading.types import EnvTable, SbatchTable, SlurmTime, Text
from srtctl.reading.validation import Strict


class ClusterProfile(Strict):
    """Facts and defaults of one cluster. Everything may be left out."""

    cluster: Text | None = Field(default=None, description="Name of the cluster, for messages and run records.")
    default_account: Text | None = Field(
        default=None, description="Slurm account of a recipe that names none; default: Slurm's own."
    )
    default_partition: Text | None = Field(
        default=None, description="Slurm partition of a recipe that names none; default: Slurm's own."
    )
    default_time_limit: SlurmTime | None = Field(
        default=None,
        description="Time limit of a recipe that gives none, as Slurm reads it: `HH:MM:SS`, `D-HH:MM:SS`, or minutes "
        "as quoted text; default: the partition's.",
        examples=["04:00:00"],
    )
    gpus_per_node: int | None = Field(default=None, ge=1, description="GPUs of one node.")
    default_gpu_type: Text | None = Field(default=None, description="GPU model of the nodes, for example `h100`.")
    network_interface: Text | None = Field(
        default=None,
        description="Interface whose address the nodes use to reach each other; default: the address that the node's "
        "name resolves to.",
        examples=["eth0"],
    )
    model_paths: dict[str, Text] = Field(
        default_factory=dict,
        description="Names that recipes may use for `model.path`, and where the weights lie.",
        examples=[{"qwen3-0.6b": "/models/Qwen3-0.6B"}],
    )
    containers: dict[str, Text] = Field(
        default_factory=dict,
        description="Names that recipes may use for `model.container`, and the image of each.",
        examples=[{"sglang": "/images/sglang.sqsh"}],
    )
    container_runtime: Literal["none", "pyxis", "apptainer"] = Field(
        default="none",
        description="How processes enter the image: `pyxis`, `apptainer`, or `none` to run them on the node itself.",
    )
    service_container: Text | None = Field(
        default=None,
        description="Image of etcd and NATS, as `model.container` names one; default: the engine's.",
    )
    default_mounts: Mounts = Field(
        default_factory=list,
        description="What every container sees: a mapping of source to target, or a list of `SOURCE:TARGET[:OPTIONS]`. A "
        "relative source begins at this file's folder; a recipe's mounts win where both have one target.",
        examples=[{"/shared": "/shared"}, ["/cache:/cache:ro"]],
    )
    default_sbatch_directives: SbatchTable = Field(
        default_factory=dict,
        description="#SBATCH options of every job, without the dashes; null is an option without a value. A recipe's "
        "`sbatch_directives` win.",
        examples=[{"constraint": "gpu", "requeue": None}],
    )
    use_gpus_per_node_directive: bool = Field(
        default=True, description="Ask for GPUs by `--gpus-per-node`; false where the cluster refuses it."
    )
    use_exclusive_sbatch_directive: bool = Field(
        default=True, description="Ask for whole nodes by `--exclusive`; false where nodes are shared."
    )
    use_segment_sbatch_directive: bool = Field(
        default=False,
        description="Ask by `--segment` for nodes that lie together, all of a job in one segment (Slurm 24.05 and newer, "
        "with topology/block).",
    )
    output_dir: Text | None = Field(
        default=None,
        description="Folder for the runs, on a file system that every node and this machine see; default: `runs` here.",
        examples=["/shared/runs"],
    )
    visible_devices_env: Text | None = Field(
        default=None,
        description="Environment variable that picks a process's GPUs; default: `CUDA_VISIBLE_DEVICES`.",
        examples=["ROCR_VISIBLE_DEVICES"],
    )
    ephemeral_port_floor: int = Field(
        default=32768,
        ge=1024,
        le=65536,
        description="First port that the nodes' kernels hand out by themselves (`ip_local_port_range`); no port at or "
        "above it is claimed.",
    )
    nodes_share_host: bool = Field(
        default=False,
        description="Whether the nodes share one machine's network, so that a port is taken on all of them at once.",
    )
    runtime_python: Text = Field(
        default="python3",
        description="Python on the nodes that runs the checks: a command, or an absolute path.",
        examples=["/usr/bin/python3.11"],
    )
    dynamo_python: Text | None = Field(
        default=None,
        description="Python on the machine that submits, with the same Dynamo as the nodes have: `apply` asks it for what a "
        "recipe uses and submits nothing where that is missing. Only with `container_runtime: none`; the job asks in any "
        "case, before the engines start.",
        examples=["/shared/stack/bin/python3"],
    )
    mpi: Text = Field(
        default="pmix",
        description="How `srun` starts the ranks of an MPI job (TensorRT-LLM): one that `srun --mpi=list` names.",
        examples=["pmi2"],
    )
    slurm_conf: Text | None = Field(
        default=None,
        description="Slurm configuration file to use, as in `SLURM_CONF`; default: Slurm's own.",
        examples=["/etc/slurm/slurm.conf"],
    )
    env: EnvTable = Field(
        default_factory=dict,
        description="Environment of every process of every run; a recipe's `environment` wins.",
        examples=[{"HF_HOME": "/shared/hf"}],
    )
