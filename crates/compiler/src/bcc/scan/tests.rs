use super::*;

#[test]
fn functions_are_told_from_everything_else() {
    let source = "\
            BPF_HASH(table, u32);\nBPF_TABLE(\"hash\", int, int, other, 1)__attributes__((SWAP));\n\
            struct key { u32 a; } __attribute__((packed));\nstatic const int list[] = { 1, 2 };\n\
            static __always_inline int help(struct key *k, u32 n) { if (n) { return 1; } return 0; }\n\
            int later(struct xdp_md *ctx);\n\
            __attribute__((noinline)) int\nrun(struct CTXTYPE *ctx, struct pkt_metadata *md) __attribute__((used))\n{}\n";
    let found = scan(source);
    let functions: Vec<_> = found
        .functions
        .iter()
        .map(|function| {
            (
                function.name,
                function.line,
                function.is_static,
                function.context(),
                function.parameters.len(),
            )
        })
        .collect();
    assert_eq!(
        functions,
        [
            ("help", 5, true, Some("key"), 2),
            ("run", 8, false, Some("CTXTYPE"), 2)
        ]
    );
    assert_eq!(found.structs.into_iter().collect::<Vec<_>>(), ["key"]);
}

#[test]
fn declarations_have_lines() {
    let source = "struct seen { int a; };\nstruct {\n int type;\n} seen SEC(\".maps\");\nBPF_HASH(\nflows);\n\
                      int f(void) { return late; }\nTP_HASH(late, int, int, 1);";
    let lines = declared(source);
    assert_eq!(
        ["seen", "flows", "late", "type"].map(|name| lines.get(name).copied()),
        [Some(4), Some(6), Some(8), None]
    );
}

#[test]
fn alternatives_do_not_upset_the_depth() {
    let source =
        "int f(struct x *c)\n#if A\n{ if (1) {\n#else\n{ if (2) {\n#endif\n} }\nint g(void) {}\n";
    let names: Vec<&str> = scan(source)
        .functions
        .iter()
        .map(|function| function.name)
        .collect();
    assert_eq!(names.last(), Some(&"g"));
}

#[test]
fn tables_have_the_types_of_all_alternatives() {
    let source = "#if A\nBPF_TABLE_SHARED(\"hash\", struct k, u64, seen, N * (2))__attributes__((SWAP));\n#else\n\
                      BPF_TABLE(\"extern\", struct k, u64, seen, N);\n#endif\nBPF_QUEUESTACK(\"queue\", q, int, 1, 0);\n\
                      BPF_HASH(h); BPF_TABLE(KIND, int, int, t, 1); BPF_PROG_ARRAY(next, 8);";
    assert_eq!(
        scan(source).tables,
        [
            ("seen", "hash"),
            ("seen", "extern"),
            ("q", "queue"),
            ("next", "prog")
        ]
    );
}

#[test]
fn own_packet_headers_have_widths() {
    let source = "struct dns_t { uint16_t id; u8 mac[3]; __be32 a; } BPF_PACKET_HEADER;\n\
                      struct bits_t { u8 a:4; } BPF_PACKET_HEADER; struct plain { u8 a; };";
    assert_eq!(scan(source).headers, [("dns_t", "21114".to_owned())]);
}
