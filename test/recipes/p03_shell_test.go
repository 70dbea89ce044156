package recipes

import (
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP03Shell: shells open, duplicate and close before they write, and who
// took the first close for the end lost text; here redirections, O_APPEND and
// duplicated descriptors do on a file of one's own and on a real file what
// they do on any disk.
func TestP03Shell(t *testing.T) {
	need(t, "bash")
	m := start(t, "chat_branches")
	for _, path := range []string{m.Session(nested, "mine"), m.Session(nested, "fields", "mine"), m.Session(nested, "messages", "mine"), m.Session(nested, "attachments", "mine")} {
		r := harness.Command(t, t.TempDir(), nil, "bash", "-c", redirections, "bash", path)
		if r.Code != 0 || r.Out != "" {
			t.Errorf("%s: exit status %d\n%s%s", path, r.Code, r.Out, r.Err)
		}
	}
	for _, name := range names(t, m.Repo(nested)) {
		if name == "mine" {
			t.Error("a scratch file reached the store")
		}
	}
}

const redirections = `F=$1; f=0
ck(){ [ "$2" = "$3" ] || { echo "$1: got $(printf %q "$2") want $(printf %q "$3")"; f=1; }; }
printf 'one\n' > "$F"; ck '>' "$(cat "$F")" one
printf 'two\n' >> "$F"; ck '>>' "$(cat "$F")" $'one\ntwo'
echo three | tee -a "$F" >/dev/null; ck 'tee -a' "$(cat "$F")" $'one\ntwo\nthree'
{ echo a; echo b; } > "$F"; ck 'group >' "$(cat "$F")" $'a\nb'
exec 3>>"$F"; echo c >&3; (echo d >&3); echo e >&3; exec 3>&-; ck 'kept open over fork' "$(cat "$F")" $'a\nb\nc\nd\ne'
: > "$F"; exec 3>>"$F" 4>>"$F"; for i in $(seq 50); do echo a$i >&3; echo b$i >&4; done; exec 3>&- 4>&-
ck 'two appenders' "$(sort "$F" | uniq | wc -l)" 100
printf x > "$F"; echo host > "$F.src"; cp "$F.src" "$F"; rm "$F.src"; ck 'cp over' "$(cat "$F")" host
printf 0123456789 > "$F"; printf XX | dd of="$F" bs=1 seek=4 conv=notrunc status=none; ck 'dd seek' "$(cat "$F")" 0123XX6789
truncate -s 4 "$F"; ck 'truncate shrink' "$(cat "$F")" 0123
truncate -s 6 "$F"; ck 'truncate grow' "$(stat -c %s "$F")" 6
: > "$F"; ck ': >' "$(stat -c %s "$F")" 0
head -c 300000 /dev/zero | tr '\0' q > "$F"; ck '300 kB' "$(md5sum < "$F")" "$(head -c 300000 /dev/zero | tr '\0' q | md5sum)"
chmod 640 "$F"; ck mode "$(stat -c %a "$F")" 640
touch -d '2001-02-03 04:05:06 UTC' "$F"; ck time "$(date -u -r "$F" +%FT%T)" 2001-02-03T04:05:06
rm "$F"; ck rm "$(ls "$F" 2>&1 | wc -l)" 1
exit $f`
