//! The daemon's advice in the words of the command line: requests are commands, and parameters are
//! options.

/// The parameters of requests that are options of commands.
const OPTIONS: [&str; 6] = ["direction", "field", "from", "step", "to", "top"];
/// A refusal that names parameters without values.
const ORDER: (&str, &str) = ("from is not before to", "--from is not before --to");

/// Returns a text of the daemon for users of the command line.
pub fn on_command_line(text: &str) -> String {
    let mut shown = Vec::new();
    let mut words = text
        .replace(ORDER.0, ORDER.1)
        .split(' ')
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter();
    while let Some(word) = words.next() {
        let asked = match &*word {
            "GET" | "POST" => words
                .as_slice()
                .first()
                .and_then(|path| command(&word, path)),
            _ => None,
        };
        let option = |name: &&&str| {
            word.strip_prefix(**name)
                .is_some_and(|value| value.starts_with('='))
        };
        if let Some(command) = asked {
            words.next();
            shown.push(command);
        } else if let Some(name) = OPTIONS.iter().find(option) {
            shown.push(format!("--{name} {}", &word[name.len() + 1..]));
        } else {
            shown.push(word);
        }
    }
    shown.join(" ")
}

/// Returns the command that makes a request. Punctuation after the path stays.
fn command(method: &str, path: &str) -> Option<String> {
    let bare = path.trim_end_matches([',', ';', '.', ':', ')']);
    let parts: Vec<&str> = bare.strip_prefix("/v1/")?.split('/').collect();
    let command = match (method, &parts[..]) {
        ("GET", ["probes"]) => "list".to_owned(),
        ("GET", ["probes", name]) => format!("get {name}"),
        ("GET", ["probes", name, "windows"]) => format!("windows {name}"),
        ("POST", ["probes", name, "windows"]) => format!("windows {name} --close"),
        ("GET", ["rules"]) => "rules list".to_owned(),
        ("GET", ["templates"]) => "rules templates list".to_owned(),
        _ => return None,
    };
    Some(format!("`twinprobe {command}`{}", &path[bare.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_commands_and_options() {
        for (text, shown) in [
            (
                "there is no probe named nosuch; GET /v1/probes lists them",
                "there is no probe named nosuch; `twinprobe list` lists them",
            ),
            (
                "both directions have a metric talker; add direction=ingress or direction=egress",
                "both directions have a metric talker; add --direction ingress or --direction egress",
            ),
            (
                "no retained windows: window.interval, or POST /v1/probes/a/windows, closes some",
                "no retained windows: window.interval, or `twinprobe windows a --close`, closes some",
            ),
            ("from is not before to", "--from is not before --to"),
            (
                "a GET /v2/x and GET, src=1 stay",
                "a GET /v2/x and GET, src=1 stay",
            ),
        ] {
            assert_eq!(on_command_line(text), shown);
        }
    }
}
