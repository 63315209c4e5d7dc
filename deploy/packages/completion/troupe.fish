# Completion for fish: the program itself says what may come next, names of the cluster included.
function __troupe_candidates
    troupe __complete (string replace --regex '^\S+\s' '' -- (commandline --cut-at-cursor)) 2>/dev/null
end
complete --command troupe --no-files --arguments '(__troupe_candidates)'
