//! The pages: plain HTML without scripts.

use super::people::KNOWN;
use super::request::Asked;

/// The one style sheet, served beside the pages so that none needs inline styles.
pub(super) const STYLE: &str = include_str!("style.css");

/// The page on which somebody says who he is.
pub(super) fn choose(asked: &Asked) -> String {
    let hidden: String = asked
        .carried()
        .map(|(name, value)| {
            format!(
                r#"<input type="hidden" name="{name}" value="{}">"#,
                escape(value)
            )
        })
        .collect();
    let hint = asked.login_hint.as_deref().unwrap_or_default();
    let buttons: String = KNOWN
        .iter()
        .map(|name| {
            let focus = if name.eq_ignore_ascii_case(hint) {
                " autofocus"
            } else {
                ""
            };
            let initial = name.chars().next().unwrap_or('?');
            format!(
                r#"<button name="person" value="{name}"{focus}><span aria-hidden="true">{initial}</span>{name}</button>"#
            )
        })
        .collect();
    let known = KNOWN.iter().any(|name| name.eq_ignore_ascii_case(hint));
    let typed = if known { "" } else { hint };
    page(
        "Who are you?",
        &format!(
            r#"<h1>Who are you?</h1>
<form method="post" action="/authorize">{hidden}
<div class="people">{buttons}</div>
</form>
<form method="post" action="/authorize">{hidden}
<label for="name">or somebody else</label>
<div class="row"><input id="name" name="name" maxlength="64" autocomplete="off" value="{}"><button>Continue</button></div>
</form>
<form method="post" action="/authorize">{hidden}<button class="quiet" name="person" value="">Go back</button></form>"#,
            escape(typed)
        ),
    )
}

/// A page that says something.
pub(super) fn says(title: &str, text: &str) -> String {
    let (title, text) = (escape(title), escape(text));
    page(&title, &format!("<h1>{title}</h1>\n<p>{text}</p>"))
}

fn page(title: &str, body: &str) -> String {
    format!(
        r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="/style.css">
<main>
{body}
<footer>This is the development sign-in of <code>felixctl dev</code>. There are no passwords, and it answers on this
machine only. Never use it for anything that matters.</footer>
</main>
</html>
"#
    )
}

/// Text for HTML, attributes included.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
