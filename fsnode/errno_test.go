package fsnode

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// contract is the table of docs/filesystem.md, "Errors".
var contract = map[store.Code]syscall.Errno{
	store.RunActive: syscall.EBUSY, store.NotFound: syscall.ENOENT, store.Ambiguous: syscall.EINVAL,
	store.SummaryHead: syscall.EINVAL, store.Invalid: syscall.EINVAL, store.Confirm: syscall.EINVAL,
	store.PredecessorMissing: syscall.EINVAL, store.Immutable: syscall.EPERM, store.Exists: syscall.EEXIST,
	store.BurntID: syscall.EEXIST, store.NotEmpty: syscall.ENOTEMPTY, store.Conflict: syscall.ESTALE,
	store.Corrupt: syscall.EIO, store.TooLarge: syscall.EFBIG, store.NoSpace: syscall.ENOSPC,
	store.Locked: syscall.EBUSY, store.ReadOnly: syscall.EROFS,
}

// codesInSource reads the constants of type Code from the store's source, so
// that a code without a row here fails.
func codesInSource(t *testing.T) []store.Code {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../store/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []store.Code
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
			return true
		}
		s, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, store.Code(s))
		return true
	})
	return out
}

func TestEveryCodeHasItsErrno(t *testing.T) {
	codes := codesInSource(t)
	if len(codes) < len(contract) {
		t.Fatalf("found %d codes in the source, the contract has %d", len(codes), len(contract))
	}
	for _, c := range codes {
		want, ok := contract[c]
		if !ok {
			t.Errorf("code %s has no row in the contract's table", c)
			continue
		}
		// Whatever is inside: the code decides.
		err := fmt.Errorf("outer: %w", &store.Error{Code: c, Op: "x", Err: os.ErrNotExist})
		if errno, code := errnoOf(err); errno != want || code != c {
			t.Errorf("%s: %v %s, want %v", c, errno, code, want)
		}
	}
}

func TestErrnoOfOtherErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
		code store.Code
	}{
		{nil, 0, ""},
		{vnode.Immutable, syscall.EPERM, store.Immutable},
		{fmt.Errorf("x: %w", vnode.BadOffset), syscall.EINVAL, store.Invalid},
		{vnode.BadSize, syscall.EINVAL, store.Invalid},
		{vnode.BadFlags, syscall.EINVAL, store.Invalid},
		{vnode.OneLine, syscall.EINVAL, store.Invalid},
		{vnode.NotText, syscall.EILSEQ, store.Invalid},
		{vnode.TooLarge, syscall.EFBIG, store.TooLarge},
		{vnode.NotFound, syscall.ENOENT, store.NotFound},
		{vnode.Stale, syscall.ESTALE, store.Conflict},
		{vnode.Killed, syscall.EINTR, ""},
		{vnode.CrossDevice, syscall.EXDEV, ""},
		{spool.ErrTooLarge, syscall.EFBIG, store.TooLarge},
		{spool.ErrNoSpace, syscall.ENOSPC, store.NoSpace},
		{spool.ErrClosed, syscall.ESTALE, store.Conflict},
		{context.Canceled, syscall.EINTR, ""},
		{&os.PathError{Op: "open", Err: syscall.ENOSPC}, syscall.ENOSPC, ""},
		{syscall.EMFILE, syscall.EMFILE, ""},
		{syscall.ENOENT, syscall.EIO, ""}, // the disk's, not the user's
		{os.ErrNotExist, syscall.EIO, ""},
		{syscall.ENOSYS, syscall.EIO, ""}, // the kernel would never ask again
		{errors.New("anything"), syscall.EIO, ""},
	} {
		if errno, code := errnoOf(c.err); errno != c.want || code != c.code {
			t.Errorf("%v: %v %q, want %v %q", c.err, errno, code, c.want, c.code)
		}
	}
}
