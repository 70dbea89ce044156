package render

import (
	"bytes"
	"html"
	"strconv"
	"time"
)

// htmlStyle is the document's only style; it has no script and loads nothing.
const htmlStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
article{border-left:3px solid #ccc;padding:0 1rem;margin:1.5rem 0}
article.user{border-color:#2a6fdb}article.assistant{border-color:#2c9a5b}
h2{font-size:.85rem;font-weight:600;color:#666;margin:.2rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit;margin:.4rem 0}
details{margin:.6rem 0;color:#444}details pre{font:.85rem/1.4 ui-monospace,monospace;background:#f5f5f5;padding:.5rem}
.failed{color:#b00020}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}details pre{background:#252525}details{color:#bbb}}`

// HTML returns a branch as one HTML document that needs nothing else: no
// script, no outside file. Texts are shown as they are, never as markup.
func HTML(title, sessionID string, msgs []Message) []byte {
	var b bytes.Buffer
	if title = oneLine(title); title == "" {
		title = oneLine(sessionID)
	}
	t := html.EscapeString(title)
	b.WriteString("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>" + t + "</title>\n<style>\n" + htmlStyle + "\n</style>\n</head>\n<body>\n" +
		"<h1>" + t + "</h1>\n<p>Session: <code>" + html.EscapeString(oneLine(sessionID)) + "</code></p>\n")
	for i := range msgs {
		htmlMessage(&b, i+1, &msgs[i])
	}
	b.WriteString("</body>\n</html>\n")
	return b.Bytes()
}

func htmlMessage(b *bytes.Buffer, position int, m *Message) {
	heading := []string{strconv.Itoa(position), oneLine(m.Role), oneLine(m.Model)}
	if !m.Time.IsZero() {
		heading = append(heading, m.Time.UTC().Format(time.RFC3339))
	}
	if !ordinary(m.Status) {
		heading = append(heading, oneLine(m.Status))
	}
	class := "other"
	switch m.Role {
	case "user", "assistant":
		class = m.Role
	}
	b.WriteString("<article class=\"" + class + "\" id=\"m" + strconv.Itoa(position) + "\">\n<h2>" +
		html.EscapeString(joinNonEmpty(heading)) + "</h2>\n")
	htmlBlock(b, m.Text)
	for i := range m.Calls {
		htmlCall(b, &m.Calls[i])
	}
	b.WriteString("</article>\n")
}

func htmlBlock(b *bytes.Buffer, text string) {
	if text == "" {
		return
	}
	// A newline right after <pre> would be dropped by the reader.
	b.WriteString("<pre>\n" + html.EscapeString(text) + "</pre>\n")
}

func htmlCall(b *bytes.Buffer, c *Call) {
	outcome := "ok"
	if !c.OK {
		outcome = "<span class=\"failed\">failed</span>"
	}
	b.WriteString("<details><summary>Call <code>" + html.EscapeString(oneLine(c.Name)) + "</code>: " + outcome + "</summary>\n")
	htmlBlock(b, c.Args)
	htmlBlock(b, c.Result)
	b.WriteString("</details>\n")
}
