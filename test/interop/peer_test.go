package interop

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peer writes a session as OpenProgram does: the session's flock, the placement
// read again, meta.json merged into what the disk holds, private files renamed
// into place.
type peer struct {
	root, id string
	// byNode writes history files without the flock, as the peer's node
	// writer does; the next seq is then only a guess.
	byNode bool
}

var errDeleted = errors.New("session deleted")

// locked runs fn with the session's flock and its present directory.
func (p peer) locked(fn func(dir string) error) error {
	f, err := os.OpenFile(filepath.Join(p.root, ".locks", p.id+".lock"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.root, ".deleted", p.id)); err == nil {
		return errDeleted
	}
	dir, err := p.place()
	if err != nil {
		return err
	}
	return fn(dir)
}

// place finds the session: locations.json is the authority.
func (p peer) place() (string, error) {
	b, err := os.ReadFile(filepath.Join(p.root, "locations.json"))
	if errors.Is(err, os.ErrNotExist) {
		return filepath.Join(p.root, p.id), nil
	}
	var places map[string]string
	if err := errors.Join(err, json.Unmarshal(b, &places)); err != nil {
		return "", err
	}
	if dir, ok := places[p.id]; ok {
		return dir, nil
	}
	return filepath.Join(p.root, p.id), nil
}

// append writes a message chained on the head, and moves the head to it.
func (p peer) append(id, text string) error {
	if p.byNode {
		dir, err := p.place()
		if err != nil {
			return err
		}
		head, err := headOf(dir)
		if err == nil {
			err = writeNode(dir, id, text, head)
		}
		if err != nil {
			return err
		}
		return p.locked(func(dir string) error { return merge(dir, id) })
	}
	return p.locked(func(dir string) error {
		head, err := headOf(dir)
		if err == nil {
			err = writeNode(dir, id, text, head)
		}
		if err != nil {
			return err
		}
		return merge(dir, id)
	})
}

// setHead moves the head.
func (p peer) setHead(id string) error {
	return p.locked(func(dir string) error { return merge(dir, id) })
}

func headOf(dir string) (string, error) {
	meta, err := readMeta(dir)
	if err != nil {
		return "", err
	}
	var head string
	return head, json.Unmarshal(meta["head_id"], &head)
}

func readMeta(dir string) (map[string]json.RawMessage, error) {
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return nil, err
	}
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(b, &meta); err != nil {
		return nil, fmt.Errorf("meta.json is not whole: %w: %q", err, b)
	}
	return meta, nil
}

// merge sets the head and the time in what the disk holds.
func merge(dir, head string) error {
	meta, err := readMeta(dir)
	if err != nil {
		return err
	}
	meta["head_id"], _ = json.Marshal(head)
	meta["updated_at"], _ = json.Marshal(now())
	b, err := encode(meta)
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, "meta.json"), b)
}

func writeNode(dir, id, text, pred string) error {
	seq, err := nextSeq(dir)
	if err != nil {
		return err
	}
	b, err := encode(map[string]any{
		"id": id, "created_at": now(), "seq": seq, "role": "llm", "name": "", "input": nil, "output": text,
		"caller": "", "predecessor": pred, "reads": []string{}, "metadata": map[string]any{"source": "peer"},
	})
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, "history", fmt.Sprintf("%04d-l-%s.json", seq, id)), b)
}

// nextSeq is one more than the highest seq of a file name.
func nextSeq(dir string) (int, error) {
	d, err := os.Open(filepath.Join(dir, "history"))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	next := 0
	for _, name := range names {
		digits, _, _ := strings.Cut(name, "-")
		if n, err := strconv.Atoi(digits); err == nil && strings.HasSuffix(name, ".json") {
			next = max(next, n+1)
		}
	}
	return next, err
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// replace is the peer's atomic write.
func replace(path string, b []byte) error {
	temp := path + "." + randomHex(16) + ".tmp"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
