package attachment

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

const stores = "../../test/testdata/stores/"

// expected is what the recorded answers hold about attachments.
type expected struct {
	Expectations []struct {
		API        string  `json:"api"`
		Session    string  `json:"session"`
		MarkerPath string  `json:"marker_path"`
		RebasedTo  *string `json:"rebased_to"`
	} `json:"expectations"`
	Sessions map[string]struct {
		Messages struct {
			Full []struct {
				ID      string `json:"id"`
				Content string `json:"content"`
			} `json:"full"`
		} `json:"get_messages"`
		Markers []struct {
			Message string `json:"message"`
			Markers []struct {
				Text, Name, Path string
			} `json:"markers"`
			Stripped string `json:"stripped"`
		} `json:"attachment_markers"`
	} `json:"sessions"`
}

func loadExpected(t *testing.T) expected {
	t.Helper()
	raw, err := os.ReadFile(stores + "attachments.expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

func TestRecordedMarkers(t *testing.T) {
	compared := 0
	for id, s := range loadExpected(t).Sessions {
		text := map[string]string{}
		for _, m := range s.Messages.Full {
			text[m.ID] = m.Content
		}
		for _, want := range s.Markers {
			content, ok := text[want.Message]
			if !ok {
				t.Fatalf("%s: message %s is not recorded", id, want.Message)
			}
			got := Find(content)
			if len(got) != len(want.Markers) {
				t.Errorf("%s %s: %d markers, want %d: %+v", id, want.Message, len(got), len(want.Markers), got)
				continue
			}
			for i, w := range want.Markers {
				if g := got[i]; g.Text != w.Text || g.Name != w.Name || g.Path != w.Path || content[g.Start:g.End] != g.Text {
					t.Errorf("%s %s: got %+v, want %+v", id, want.Message, g, w)
				}
			}
			if diff := cmp.Diff(want.Stripped, Strip(content)); diff != "" {
				t.Errorf("%s %s: stripped (-want +got):\n%s", id, want.Message, diff)
			}
			compared++
		}
	}
	if compared < 13 {
		t.Errorf("only %d messages compared", compared)
	}
}

func TestRecordedPaths(t *testing.T) {
	root := filepath.Join(extract(t, stores+"attachments.tar.gz"), "sessions")
	before := tree(t, root)
	r := Resolver{FS: disk.OS, Root: root, Home: "/home/user"}
	compared := 0
	for _, e := range loadExpected(t).Expectations {
		if e.API != "attachment_path" {
			continue
		}
		got, err := r.Rebase(r.Readable(""), e.Session, e.MarkerPath)
		switch {
		case e.RebasedTo == nil && err == nil:
			t.Errorf("%s: got %s, want a refusal", e.MarkerPath, got)
		case e.RebasedTo != nil:
			if want := strings.Replace(*e.RebasedTo, "@SESSIONS_ROOT@", root, 1); got != want {
				t.Errorf("%s: got %s (%v), want %s", e.MarkerPath, got, err, want)
			}
		}
		compared++
	}
	if compared != 8 {
		t.Errorf("%d paths compared, want 8", compared)
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("resolving changed the store:\n%s", diff)
	}
}

// extract unpacks a fixture into a directory without symlinks in its path.
func extract(t *testing.T, tarball string) string {
	t.Helper()
	dir := realTemp(t)
	f, err := os.Open(tarball)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		default:
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, h.FileInfo().Mode()))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tree lists what is below a directory, with sizes and times.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(root, func(path string, fi os.FileInfo, err error) error {
		if err == nil {
			out[path] = fi.Mode().String() + fi.ModTime().String()
		}
		return err
	})
	if err != nil || len(out) < 50 {
		t.Fatalf("%d names, %v", len(out), err)
	}
	return out
}
