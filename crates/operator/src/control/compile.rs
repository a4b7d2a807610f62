//! One compilation for all nodes: the operator makes objects of a revision's sources, so that nodes
//! need no compiler. The compiler is confined, like that of a daemon.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use twinprobe_api::{CompiledRevision, ConfigDocument, RevisionObjects};
use twinprobe_compiler::{CompileLimits, Compiler, CompilerOptions, Toolchain};
use twinprobe_config::{Code, ProbeConfig};
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_fleet::digest;

/// The words of clang for a header that is not there.
const NO_HEADER: &str = "file not found";
const FOLLOWS_TYPES: &str = "a source includes vmlinux.h, whose types are those of each node's kernel; twinprobe-operator run --btf \
                             FILE gives the types of one kernel for all";
const NO_COMPILATIONS: &str = "the operator was started with --compile-on-nodes";
const AS_WISHED: &str = "the object says compileOnNodes";

/// Options of the compiler.
#[derive(Clone, Debug, Default, Args)]
pub struct CompileOptions {
    /// Leave the compilation of sources to the nodes
    #[arg(long)]
    compile_on_nodes: bool,
    /// Take the types of vmlinux.h from this file, the BTF of a kernel or an ELF file with BTF;
    /// without it each node compiles sources that need vmlinux.h
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
}

/// The outcome for a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiled {
    Once(CompiledRevision),
    /// The configuration has objects and no source.
    Already,
    /// Each node compiles the sources itself, for this reason.
    OnNodes(String),
}

/// The compiler of the operator.
#[derive(Debug)]
pub struct Compilations {
    options: CompileOptions,
    toolchain: Arc<Toolchain>,
    places: Semaphore,
    /// The last refusal for each object, with the digest of the refused configuration. Reports come
    /// often, while the sources stay the same.
    refused: Mutex<BTreeMap<String, (String, Rejection)>>,
}

impl Compilations {
    /// Searches for clang.
    pub fn new(options: CompileOptions) -> Self {
        let toolchain = Toolchain::discover(CompilerOptions::default());
        match toolchain.known() {
            _ if options.compile_on_nodes => {}
            Ok(compiler) => {
                if let Some(btf) = &options.btf {
                    compiler.take_types_from(btf);
                }
                tracing::info!(
                    compiler = compiler.version,
                    "the operator compiles sources once, for all nodes"
                );
            }
            Err(reason) => tracing::warn!(reason, "nodes compile sources themselves"),
        }
        let places = Semaphore::new(CompileLimits::default().at_once);
        Self {
            options,
            toolchain: Arc::new(toolchain),
            places,
            refused: Mutex::default(),
        }
    }

    /// Compiles the sources of a configuration. A refusal is about the sources themselves. If the
    /// operator's own compiler fails, the nodes compile.
    pub async fn compile(
        &self,
        name: &str,
        config: &ConfigDocument,
        on_nodes: bool,
    ) -> Result<Compiled, Rejection> {
        if on_nodes {
            return Ok(Compiled::OnNodes(AS_WISHED.to_owned()));
        }
        let digest = digest(config);
        if let Some((_, rejection)) = self
            .refused
            .lock()
            .get(name)
            .filter(|(refused, _)| *refused == digest)
        {
            return Err(rejection.clone());
        }
        let config = ProbeConfig::validate(name, config)?;
        let done = self.compile_valid(&config).await;
        match &done {
            Ok(_) => drop(self.refused.lock().remove(name)),
            Err(rejection) => {
                drop(
                    self.refused
                        .lock()
                        .insert(name.to_owned(), (digest, rejection.clone())),
                );
            }
        }
        done
    }

    async fn compile_valid(&self, config: &ProbeConfig) -> Result<Compiled, Rejection> {
        if !config
            .directions()
            .any(|(_, direction)| matches!(direction.code, Code::Source(_)))
        {
            return Ok(Compiled::Already);
        }
        if self.options.compile_on_nodes {
            return Ok(Compiled::OnNodes(NO_COMPILATIONS.to_owned()));
        }
        let toolchain = Arc::clone(&self.toolchain);
        let compiler = match spawn_blocking(move || toolchain.get()).await {
            Ok(Ok(compiler)) => compiler,
            Ok(Err(reason)) => return Ok(Compiled::OnNodes(reason)),
            Err(error) => return Ok(Compiled::OnNodes(error.to_string())),
        };
        if self.options.btf.is_none() && follows_types(config) {
            return Ok(Compiled::OnNodes(FOLLOWS_TYPES.to_owned()));
        }
        // This acquisition does not fail: the semaphore is never closed.
        let _place = self.places.acquire().await.ok();
        let mut objects = Vec::new();
        for frags in [true, false] {
            match compiled(&compiler, config, frags).await {
                Ok(made) => objects.push(made),
                Err(rejection) if is_of_the_source(&rejection) => return Err(rejection),
                Err(rejection) => return Ok(Compiled::OnNodes(first_words(&rejection))),
            }
        }
        if let [newer, older] = &objects[..]
            && (&newer.ingress, &newer.egress) == (&older.ingress, &older.egress)
        {
            let any = RevisionObjects {
                frags: None,
                ..newer.clone()
            };
            objects = vec![any];
        }
        let architecture = std::env::consts::ARCH.to_owned();
        Ok(Compiled::Once(CompiledRevision {
            compiler: compiler.version,
            architecture,
            objects,
        }))
    }
}

fn follows_types(config: &ProbeConfig) -> bool {
    config.directions().any(|(direction, of)| match &of.code {
        Code::Source(source) => {
            Compiler::follows_types(&config.unit((direction, of), source, "", true))
        }
        Code::Object(_) => false,
    })
}

/// Compiles all sources for kernels with XDP programs for packets of several buffers, or for
/// kernels without.
async fn compiled(
    compiler: &Compiler,
    config: &ProbeConfig,
    frags: bool,
) -> Result<RevisionObjects, Rejection> {
    let mut objects = RevisionObjects {
        frags: Some(frags),
        ..RevisionObjects::default()
    };
    for (direction, of) in config.directions() {
        let Code::Source(source) = &of.code else {
            continue;
        };
        let field = format!("{direction}.source");
        let object = compiler
            .compile(&config.unit((direction, of), source, &field, frags))
            .await?;
        let new = object
            .shared
            .into_iter()
            .filter(|name| !config.shared_maps.contains(name));
        objects.shared_maps.extend(new);
        let elf = Some(STANDARD.encode(object.elf));
        match direction {
            Direction::Ingress => objects.ingress = elf,
            Direction::Egress => objects.egress = elf,
        }
    }
    objects.shared_maps.sort();
    objects.shared_maps.dedup();
    Ok(objects)
}

/// Tells whether the compiler has found a mistake in a source. A node may have a header that the
/// operator lacks.
fn is_of_the_source(rejection: &Rejection) -> bool {
    let findings = &rejection.findings;
    findings.iter().any(|finding| finding.line.is_some())
        && !findings
            .iter()
            .any(|finding| finding.message.contains(NO_HEADER))
}

fn first_words(rejection: &Rejection) -> String {
    rejection
        .findings
        .first()
        .map_or_else(String::new, |finding| finding.message.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use twinprobe_fleet::{NodeMachine, for_node};

    use super::*;

    const COUNTER: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); __uint(max_entries, N); } seen SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx) { return XDP_PASS; }
char LICENSE[] SEC("license") = "GPL";
"#;

    fn config(source: &str) -> ConfigDocument {
        let metric = json!({ "name": "seen", "map": "seen" });
        let ingress = json!({ "source": source, "defines": { "N": "4" }, "metrics": [metric] });
        serde_json::from_value(json!({ "interface": "lo", "ingress": ingress })).unwrap()
    }

    async fn compile(
        options: CompileOptions,
        config: &ConfigDocument,
    ) -> Result<Compiled, Rejection> {
        Compilations::new(options).compile("p", config, false).await
    }

    #[tokio::test]
    async fn equal_objects_serve_every_kernel() {
        let done = compile(CompileOptions::default(), &config(COUNTER))
            .await
            .unwrap();
        let Compiled::Once(compiled) = &done else {
            panic!("{done:?}")
        };
        let [objects] = &compiled.objects[..] else {
            panic!("{compiled:?}")
        };
        assert_eq!((objects.frags, &objects.egress), (None, &None));
        let elf = STANDARD.decode(objects.ingress.as_ref().unwrap()).unwrap();
        assert!(
            elf.starts_with(b"\x7fELF") && compiled.compiler.contains("clang"),
            "{}",
            compiled.compiler
        );
        // The same source and compiler make the same bytes.
        assert_eq!(
            compile(CompileOptions::default(), &config(COUNTER))
                .await
                .unwrap(),
            done
        );
    }

    #[tokio::test]
    async fn a_library_probe_has_an_object_for_old_kernels_and_one_for_new_ones() {
        let mut config = twinprobe_library::library_probe("packet-counter").unwrap();
        (config.name, config.interface) = (None, Some("lo".to_owned()));
        let done = compile(CompileOptions::default(), &config).await.unwrap();
        let Compiled::Once(compiled) = done else {
            panic!("{done:?}")
        };
        assert_eq!(
            compiled
                .objects
                .iter()
                .map(|it| it.frags)
                .collect::<Vec<_>>(),
            [Some(true), Some(false)]
        );
        let spec = twinprobe_api::RevisionSpec {
            config: serde_json::to_value(&config).unwrap(),
            compiled: Some(compiled),
            ..Default::default()
        };
        let machine = |frags| NodeMachine {
            architecture: std::env::consts::ARCH,
            frags,
        };
        let (new, old) = (
            for_node(&spec, machine(true)).unwrap(),
            for_node(&spec, machine(false)).unwrap(),
        );
        assert_ne!(digest(&new), digest(&old));
        for config in [new, old] {
            let valid = ProbeConfig::validate("p", &config).unwrap();
            assert!(
                valid
                    .directions()
                    .all(|(_, direction)| matches!(direction.code, Code::Object(_)))
            );
        }
    }

    #[tokio::test]
    async fn a_mistake_is_refused_and_what_the_operator_lacks_is_left_to_nodes() {
        let refused = compile(
            CompileOptions::default(),
            &config("int f(void) { return y; }\n"),
        )
        .await;
        let findings = refused.unwrap_err().findings;
        assert_eq!(
            (findings[0].field.as_deref(), findings[0].line),
            (Some("ingress.source"), Some(1))
        );
        for (source, why) in [
            ("#include \"not-here.h\"\n", "not-here.h"),
            ("#include \"vmlinux.h\"\n", "--btf"),
        ] {
            let done = compile(CompileOptions::default(), &config(source))
                .await
                .unwrap();
            assert!(
                matches!(&done, Compiled::OnNodes(reason) if reason.contains(why)),
                "{done:?}"
            );
        }
        let nodes = CompileOptions {
            compile_on_nodes: true,
            ..CompileOptions::default()
        };
        assert!(matches!(
            compile(nodes, &config(COUNTER)).await.unwrap(),
            Compiled::OnNodes(_)
        ));
    }

    #[tokio::test]
    async fn given_types_are_those_of_every_node() {
        let types = CompileOptions {
            btf: Some("/sys/kernel/btf/vmlinux".into()),
            ..CompileOptions::default()
        };
        let source = "#include \"vmlinux.h\"\n#include <bpf/bpf_helpers.h>\nSEC(\"xdp\") int see(struct xdp_md *ctx) { return 2; }\n";
        let done = compile(types, &config(source)).await.unwrap();
        assert!(matches!(done, Compiled::Once(_)), "{done:?}");
    }

    #[tokio::test]
    async fn an_object_stays_as_it_is() {
        let mut given = config(COUNTER);
        given
            .ingress
            .as_mut()
            .unwrap()
            .take_object(STANDARD.encode(b"\x7fELF"));
        assert_eq!(
            compile(CompileOptions::default(), &given).await.unwrap(),
            Compiled::Already
        );
    }
}
