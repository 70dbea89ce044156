package main

import (
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func TestPickSession(t *testing.T) {
	rows := []store.Row{
		{ID: "local_demo", Title: "Kyoto"},
		{ID: "local_demo2", Title: "Kyoto"},
		{ID: "local_tools", Title: "local_demo2"},
		{ID: "web_1", Title: "A\nB"},
	}
	for _, tt := range []struct {
		name, ref, want string
		code            store.Code
	}{
		{"exact id is no prefix", "local_demo", "local_demo", ""},
		{"exact id before a title", "local_demo2", "local_demo2", ""},
		{"unique prefix", "local_t", "local_tools", ""},
		{"title", "A\nB", "web_1", ""},
		{"prefix of several", "local_", "", store.Ambiguous},
		{"title of several", "Kyoto", "", store.Ambiguous},
		{"title is exact", "Kyot", "", store.NotFound},
		{"nothing", "x", "", store.NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := pickSession(rows, tt.ref)
			if got != tt.want || store.CodeOf(err) != tt.code {
				t.Errorf("got %q, %v; want %q, code %q", got, err, tt.want, tt.code)
			}
		})
	}
}

func TestAmbiguityListsCandidates(t *testing.T) {
	var rows []store.Row
	for _, c := range "abcdefghijklm" {
		rows = append(rows, store.Row{ID: "s_" + string(c), Title: "title " + string(c)})
	}
	_, err := pickSession(rows, "s_")
	for _, want := range []string{"13 sessions", "s_a (title a)", "s_j (title j)", ", ..."} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "s_k") {
		t.Errorf("got %q, want at most %d candidates", err, maxCandidates)
	}
}
