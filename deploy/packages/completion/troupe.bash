# Completion for bash: the program itself says what may come next, names of the cluster included.
_troupe() {
  local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]} candidate
  [[ $line == *' '* ]] || return
  COMPREPLY=()
  while IFS= read -r candidate; do
    # Bash takes '=' and ':' for ends of words, and replaces only what stands behind the last of them.
    case $word in
      = | :) candidate=${candidate#*"$word"} ;;
      *) [[ $candidate == "$word"* ]] || candidate=${candidate##*[=:]} ;;
    esac
    COMPREPLY+=("$candidate")
  done < <(troupe __complete "${line#* }" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != */ ]] || compopt -o nospace
}
complete -F _troupe troupe
