//! The options of `serve` about pods.

use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct PodOptions {
    /// Root of the cgroups, where the daemon finds the processes of pods
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroups: PathBuf,
    /// Documents name the pods and Services of the addresses in keys, as PUT /v1/pods has told the
    /// daemon
    #[arg(long)]
    pub kubernetes: bool,
}
