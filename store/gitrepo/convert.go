package gitrepo

import "bytes"

// eolAction is what happens to line ends when a file is stored.
type eolAction int

const (
	eolBinary eolAction = iota // nothing
	eolText                    // CR LF becomes LF
	eolAuto                    // the same, if the content looks like text
)

// conversion is what the attributes of one file ask for.
type conversion struct {
	eol      eolAction
	ident    bool
	filter   string // name of the filter driver, which is never run
	encoding string // working-tree-encoding, which is not converted
}

func (c conversion) none() bool { return c.eol == eolBinary && !c.ident }

// conversionFor decides from attributes and core.autocrlf ("true", "input" or
// "").
func conversionFor(attrs map[string]attrState, autocrlf string) conversion {
	action, decided := lineEndAction(attrs[attrText])
	if !decided {
		action, decided = lineEndAction(attrs[attrCRLF])
	}
	// An eol attribute makes a file text unless it is binary.
	if eol := attrs[attrEOL].value; (eol == "lf" || eol == "crlf") && !decided {
		action, decided = eolText, true
	}
	if !decided && autocrlf != "" {
		action = eolAuto
	}
	c := conversion{eol: action, ident: attrs[attrIdent].set}
	c.filter = attrs[attrFilter].value
	c.encoding = attrs[attrEncoding].value
	return c
}

func lineEndAction(s attrState) (action eolAction, decided bool) {
	switch {
	case s.set, s.value == "input":
		return eolText, true
	case s.unset:
		return eolBinary, true
	case s.value == "auto":
		return eolAuto, true
	}
	return eolBinary, false
}

// apply converts content to what is stored. hadCRLF says whether the version
// in the index holds CR LF: then an automatic conversion leaves it alone.
func (c conversion) apply(content []byte, hadCRLF func() bool) []byte {
	content = c.lineEnds(content, hadCRLF)
	if c.ident {
		content = collapseIdent(content)
	}
	return content
}

func (c conversion) lineEnds(content []byte, hadCRLF func() bool) []byte {
	if c.eol == eolBinary || !bytes.Contains(content, []byte("\r\n")) {
		return content
	}
	if c.eol == eolAuto && (looksBinary(content) || hadCRLF()) {
		return content
	}
	return bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
}

// looksBinary is Git's guess: a NUL, a CR without LF, or more than one
// unprintable character in 128 printable ones.
func looksBinary(content []byte) bool {
	var printable, unprintable int
	for i, c := range content {
		switch {
		case c == 0:
			return true
		case c == '\r':
			if i+1 >= len(content) || content[i+1] != '\n' {
				return true
			}
		case c == '\n':
		case c == 0x7f, c < ' ' && c != '\b' && c != '\t' && c != 0x1b && c != '\f':
			unprintable++
		default:
			printable++
		}
	}
	if n := len(content); n > 0 && content[n-1] == 0x1a {
		unprintable-- // the end mark of DOS
	}
	return printable>>7 < unprintable
}

// holdsCRLF reports whether stored content is text with CR LF line ends.
func holdsCRLF(content []byte) bool {
	return bytes.Contains(content, []byte("\r\n")) && !looksBinary(content)
}

// collapseIdent turns "$Id: anything $" back into "$Id$".
func collapseIdent(content []byte) []byte {
	var out []byte
	rest := content
	for {
		i := bytes.Index(rest, []byte("$Id:"))
		if i < 0 {
			break
		}
		after := rest[i+len("$Id:"):]
		end := bytes.IndexAny(after, "$\n")
		if end < 0 {
			break
		}
		if after[end] == '\n' {
			out = append(out, rest[:i+len("$Id:")+end]...)
		} else {
			out = append(append(out, rest[:i]...), "$Id$"...)
			end++
		}
		rest = after[end:]
	}
	if out == nil {
		return content
	}
	return append(out, rest...)
}
