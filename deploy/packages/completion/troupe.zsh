#compdef troupe
# Completion for zsh: the program itself says what may come next, names of the cluster included.
local line="${BUFFER[1,CURSOR]}"
local -a candidates
candidates=("${(@f)$(troupe __complete "${line#* }" 2>/dev/null)}")
compadd -Q -S '' -- ${(M)candidates:#*/}
compadd -Q -- ${candidates:#*/}
