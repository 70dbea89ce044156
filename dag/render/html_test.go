package render

import (
	"strings"
	"testing"
	"time"
)

func TestHTMLEscapesEverything(t *testing.T) {
	evil := `<script>alert("1")</script>&'`
	got := string(HTML(evil, evil, []Message{{
		Role: evil, Model: evil, Text: "\n" + evil, Status: evil, Time: time.Unix(0, 0),
		Calls: []Call{{Name: evil, Args: evil, Result: evil}},
	}}))
	if strings.Contains(got, "<script") {
		t.Errorf("markup of a message is markup of the page:\n%s", got)
	}
	if !strings.Contains(got, "<pre>\n\n&lt;script&gt;") {
		t.Errorf("the first newline of a text is lost:\n%s", got)
	}
	if !strings.Contains(got, `<span class="failed">failed</span>`) {
		t.Error("a failed call does not say so")
	}
}

func TestHTMLHasTheMessages(t *testing.T) {
	got := string(HTML("", "s1", []Message{{Role: "user", Text: "hi"}, {Role: "assistant", Text: "hello", Status: "completed"}}))
	for _, want := range []string{"<title>s1</title>", `<article class="user" id="m1">`, "1 · user", "<pre>\nhello</pre>", "2 · assistant<"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
