# completion.awk - write the completion script of a program for a shell
#
# Usage: { PROGRAM --options-dump; mqworker --options-dump; } |
#     awk -v shell=bash|zsh|fish -f completion.awk
# A line of a dump (common/cli/options.c) has fields separated by tabs:
#   program NAME runs|-
#   verb    NAME reads|ids|- ABOUT settings|- LAST
#   flag    VERBS NAME LETTER bare|value|optional again|- VALUE WORDS HELP live|-
#           DEFAULT HEADING (the last two are for mqctl serve)
#   runs      a command follows "--"
#   reads     an operand is a FILE
#   ids       the operands after the queue are ids that the verb "list" prints
#   settings  the operands after the queue are NAME=VALUE, where NAME is a flag of
#             mqworker with "live". Nothing else of its dump is used here.
#   LAST      the words for the second operand after the queue
#   again     the flag may be repeated
#   WORDS     the words for the flag's value
BEGIN {
    FS = "\t"
    queues = "mqctl queues --json 2>/dev/null | " \
        "sed -n 's/^{\"queue\":\"\\([^\"]*\\)\".*/\\1/p'"
    list = " list --limit 100 --json "
    ids = " 2>/dev/null | sed -n 's/^{\\(\"queue\":\"[^\"]*\",\\)\\{0,1\\}" \
        "\"id\":\"\\{0,1\\}\\([0-9A-Z]*\\)\"\\{0,1\\},.*/\\2/p'"
}
$1 == "program" && program {
    worker = 1
    next
}
worker {
    if ($1 == "flag" && $10 == "live")
        settings = settings (settings ? " " : "") $3 "="
    next
}
$1 == "program" {
    program = $2
    runs = $3 == "runs"
}
$1 == "verb" {
    verb[++verbs] = $2
    all_verbs = all_verbs (verbs > 1 ? " " : "") $2
    reads[verbs] = $3 == "reads"
    lists[verbs] = $3 == "ids"
    listed = listed || lists[verbs]
    about[verbs] = $4
    sets[verbs] = $5 == "settings"
    last[verbs] = $6
    gsub(/\|/, " ", last[verbs])
}
$1 == "flag" {
    flags++
    takes[flags] = " " $2 " "
    name[flags] = $3
    if (!(($3, $8) in offered))
        named[$3]++
    offered[$3, $8]
    letter[flags] = $4
    shape[flags] = $5
    again[flags] = $6 == "again"
    value[flags] = $7
    words[flags] = $8
    gsub(/\|/, " ", words[flags])
    help[flags] = $9
}
END {
    if (!program || shell !~ /^(bash|zsh|fish)$/) {
        print "completion.awk: give bash, zsh or fish, and dumps" >"/dev/stderr"
        exit 64
    }
    for (v in sets)
        sets[v] = sets[v] ? settings : ""
    if (shell == "bash")
        bash()
    else if (shell == "zsh")
        zsh()
    else
        fish()
}

# Return what to offer for a flag's value, by its words or by the value's name.
function offer(i) {
    return words[i] != ""              ? "words" \
         : value[i] ~ /^(FILE|PATH)/   ? "files" \
         : value[i] ~ /^DIR/           ? "directories" \
         : value[i] ~ /^(QUEUE|NAME)/  ? "queues" : "nothing"
}
# Return true if the verb takes the flag. A program without verbs takes all flags.
function taken(i, v) {
    return !verbs || index(takes[i], " " verb[v] " ")
}
# Return the text for use between single quotes, and for zsh also in brackets.
function quoted(text, brackets) {
    if (brackets)
        gsub(/\[|\]|:|\\/, "\\\\&", text)
    gsub(/'/, "'\\''", text)
    return text
}

# ---- bash: the bash-completion package only has to load the script ----

function bash(    i, v) {
    print "# bash completion for " program "; made from its option rows"
    # Every program's script defines these functions, all in the same way.
    print "_mqw_queues() { " queues "; }"
    print "_mqw_ids() { \"$1\"" list "-- \"$2\"" ids "; }"
    print "_mqw_filenames() { compopt -o filenames 2>/dev/null; }"
    print "_mqw_offer() { # what compgen gives for $cur, words with blanks whole"
    print "    local word"
    print "    COMPREPLY=()"
    print "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done " \
        "< <(compgen \"$@\" -- \"$cur\")"
    print "}"
    print "_" program "() {"
    # bash splits --flag=value into three words; set $prev to --flag= then.
    print "    local cur=${COMP_WORDS[COMP_CWORD]} " \
        "prev=${COMP_WORDS[COMP_CWORD - 1]}"
    print "    local flags='' files='' ids='' sets='' last='' queues=()"
    print "    if [ \"$cur\" = = ]; then"
    print "        cur='' prev+='='"
    print "    elif [ \"$prev\" = = ]; then"
    print "        prev=${COMP_WORDS[COMP_CWORD - 2]}="
    print "    fi"
    if (runs) {
        print "    local i"
        print "    for ((i = 1; i < COMP_CWORD; i++)); do"
        print "        [ \"${COMP_WORDS[i]}\" = -- ] || continue"
        print "        if ((i == COMP_CWORD - 1)); then"
        print "            _mqw_offer -A command -A file"
        print "        else"
        print "            _mqw_offer -f"
        print "        fi"
        print "        _mqw_filenames"
        print "        return"
        print "    done"
    }
    print "    case ${COMP_WORDS[1]}:$prev in"
    for (i = 1; i <= flags; i++)
        if (shape[i] != "bare")
            print "    " bash_flag(i) ") " bash_offer(i) "return ;;"
    print "    esac"
    if (verbs) {
        print "    if [ \"$COMP_CWORD\" -eq 1 ]; then"
        print "        _mqw_offer -W '" all_verbs " --help --version'"
        print "        return"
        print "    elif [ \"$COMP_CWORD:${COMP_WORDS[1]}\" = 2:help ]; then"
        print "        _mqw_offer -W '" all_verbs "'"
        print "        return"
        print "    fi"
        print "    case ${COMP_WORDS[1]} in"
        for (v = 1; v <= verbs; v++)
            print "    " verb[v] ") " bash_flags(v) \
                (reads[v] ? " files=1" : "") (lists[v] ? " ids=1" : "") \
                (sets[v] != "" ? " sets='" sets[v] "'" : "") \
                (last[v] != "" ? " last='" last[v] "'" : "") " ;;"
        print "    esac"
    } else {
        print "    " bash_flags(0)
    }
    print "    case $cur in"
    print "    -*)"
    print "        _mqw_offer -W \"$flags\""
    print "        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null"
    print "        ;;"
    print "    *)"
    print "        if [ \"$sets\" ] && [ \"$COMP_CWORD\" -gt 2 ]; then"
    print "            [[ $prev == *= ]] || _mqw_offer -W \"$sets\""
    print "            compopt -o nospace 2>/dev/null"
    print "            return"
    print "        fi"
    print "        if [ \"$last\" ] && [ \"$COMP_CWORD\" -gt 2 ]; then"
    print "            [ \"$COMP_CWORD\" -eq 3 ] || _mqw_offer -W \"$last\""
    print "            return"
    print "        fi"
    print "        if [ \"$ids\" ] && [ \"$COMP_CWORD\" -gt 2 ] &&"
    print "            [[ ${COMP_WORDS[2]} != -* ]]; then"
    print "            _mqw_offer -W \"$(_mqw_ids " program \
        " \"${COMP_WORDS[2]}\")\""
    print "            return"
    print "        fi"
    print "        _mqw_offer -W \"$(_mqw_queues)\""
    print "        [ \"$files\" ] || return"
    print "        queues=(\"${COMPREPLY[@]}\")"
    print "        _mqw_offer -f"
    print "        COMPREPLY+=(\"${queues[@]}\")"
    print "        ;;"
    print "    esac"
    print "}"
    print "complete -F _" program " " program
}
# Return bash's pattern VERB:FLAG. VERB is * unless the flag of another verb has the
# same name and other values.
function bash_flag(i,    v, n, verbs_of, all) {
    n = named[name[i]] > 1 ? split(takes[i], verbs_of, " ") : 0
    if (!n)
        verbs_of[n = 1] = "*"
    for (v = 1; v <= n; v++)
        all = all (v > 1 ? " | " : "") \
            (letter[i] != "" ? verbs_of[v] ":-" letter[i] " | " : "") \
            (shape[i] == "value" ? verbs_of[v] ":--" name[i] " | " : "") \
            verbs_of[v] ":--" name[i] "="
    return all
}
function bash_offer(i,    o) {
    o = offer(i)
    return o == "words"       ? "_mqw_offer -W '" words[i] "'; " \
         : o == "files"       ? "_mqw_offer -f; _mqw_filenames; " \
         : o == "directories" ? "_mqw_offer -d; _mqw_filenames; " \
         : o == "queues"      ? "_mqw_offer -W \"$(_mqw_queues)\"; " : ""
}
function bash_flags(v,    i, all) {
    for (i = 1; i <= flags; i++)
        if (taken(i, v))
            all = all "--" name[i] (shape[i] == "optional" ? "=" : "") " "
    return "flags='" all "'"
}

# ---- zsh: one call of _arguments (zshcompsys(1)) for each verb ----

function zsh(    v) {
    print "#compdef " program
    print "# zsh completion for " program "; made from its option rows"
    print "_mqw_queues() {"
    print "    local -a queues"
    print "    queues=(${(f)\"$(" queues ")\"})"
    print "    compadd \"$@\" -a queues"
    print "}"
    if (listed) {
        # $words begins with the verb at this place.
        print "_" program "_ids() {"
        print "    local -a ids"
        print "    ids=(${(f)\"$(" program list "-- \"$words[2]\"" ids ")\"})"
        print "    compadd \"$@\" -a ids"
        print "}"
    }
    print "_" program "() {"
    if (verbs) {
        print "    local context state line"
        print "    typeset -A opt_args"
        print "    _arguments -C '(- *)'{-h,--help}'[print this and exit]' " \
            "'(- *)--version[print the version and exit]' \\"
        printf "        '1:verb:(("
        for (v = 1; v <= verbs; v++)
            printf "%s%s\\:\"%s\"", (v == 1 ? "" : " "), verb[v],
                quoted(about[v], 1)
        print "))' '*::argument:->argument'"
        print "    [ \"$state\" ] || return"
        print "    case $words[1] in"
        for (v = 1; v <= verbs; v++) {
            printf "    %s) ", verb[v]
            zsh_arguments(v)
            print "        ;;"
        }
        print "    help) _arguments '1:verb:(" all_verbs ")'"
        print "        ;;"
        print "    esac"
    } else {
        printf "    "
        zsh_arguments(0)
    }
    print "}"
    print "_" program " \"$@\""
}
function zsh_arguments(v,    i) {
    printf "_arguments -s -S"
    for (i = 1; i <= flags; i++)
        if (taken(i, v))
            printf " \\\n        %s", zsh_flag(i)
    printf " \\\n        '1:queue:_mqw_queues'"
    if (runs)
        printf " \\\n        '*::command:_normal'"
    else if (reads[v])
        printf " \\\n        '*:file:_files'"
    else if (lists[v])
        printf " \\\n        '*:id:_%s_ids'", program
    else if (sets[v] != "")
        printf " \\\n        '*:setting:compadd -S \"\" -- %s'", sets[v]
    else if (last[v] != "")
        printf " \\\n        '2:key: ' '3:order:(%s)'", last[v]
    print ""
}
# Return zsh's description of a flag, such as '(-c --cap)'{-c+,--cap=}'[help]:N:'.
function zsh_flag(i,    bare, long, both) {
    bare = shape[i] == "bare"
    long = "--" name[i] (bare ? "" : shape[i] == "optional" ? "=-" : "=")
    both = "{-" letter[i] (bare ? "" : "+") "," long "}'"
    return (letter[i] == "" ? "'" (again[i] ? "*" : "") long \
            : again[i]      ? "'*'" both \
            : "'(-" letter[i] " --" name[i] ")'" both) \
        "[" quoted(help[i], 1) "]" (bare ? "" : zsh_value(i)) "'"
}
function zsh_value(i,    o) {
    o = offer(i)
    return (shape[i] == "optional" ? "::" : ":") quoted(value[i], 1) \
        (o == "words"       ? ":(" words[i] ")" \
       : o == "files"       ? ":_files" \
       : o == "directories" ? ":_files -/" \
       : o == "queues"      ? ":_mqw_queues" : ": ")
}

# ---- fish: one line for each flag ----

function fish(    i, v, when, files, complete) {
    complete = "complete -c " program
    print "# fish completion for " program "; made from its option rows"
    print "function __mqw_queues"
    print "    " queues
    print "end"
    if (listed) {
        print "function __" program "_ids"
        print "    set -l words (commandline -opc)"
        print "    test (count $words) -gt 2; and " program list \
            "-- $words[3]" ids
        print "end"
    }
    # fish 3.1 offers no files for a verb if there is also an -f without a condition.
    for (v = 1; v <= verbs; v++)
        files = files (reads[v] ? " " verb[v] : "")
    print complete \
        (files != "" ? " -n 'not __fish_seen_subcommand_from" files "'" \
         : runs      ? " -n 'not contains -- -- (commandline -opc)'" : "") " -f"
    for (v = 1; v <= verbs; v++) {
        print complete " -n __fish_use_subcommand -a " verb[v] " -d '" \
            quoted(about[v]) "'"
        if (reads[v])
            print complete " -n '__fish_seen_subcommand_from " verb[v] "' -F"
        if (lists[v])
            print complete " -n '__fish_seen_subcommand_from " verb[v] \
                "' -a '(__" program "_ids)'"
        if (sets[v] != "")
            print complete " -n '__fish_seen_subcommand_from " verb[v] \
                "' -a '" sets[v] "'"
        if (last[v] != "")
            print complete " -n '__fish_seen_subcommand_from " verb[v] \
                "' -a '" last[v] "'"
    }
    if (verbs) {
        print complete " -n __fish_use_subcommand -l version -d 'print the " \
            "version and exit'"
        print complete " -n __fish_use_subcommand -s h -l help -d 'print " \
            "this and exit'"
        print complete " -n 'not __fish_use_subcommand' -a '(__mqw_queues)'"
        print complete " -n '__fish_seen_subcommand_from help' -a '" \
            all_verbs "'"
    } else {
        print complete " -a '(__mqw_queues)'"
    }
    if (runs)
        print complete " -n 'contains -- -- (commandline -opc)' -F -a " \
            "'(__fish_complete_command)'"
    for (i = 1; i <= flags; i++) {
        when = verbs ? " -n '__fish_seen_subcommand_from" \
                       substr(takes[i], 1, length(takes[i]) - 1) "'" \
             : runs  ? " -n 'not contains -- -- (commandline -opc)'" : ""
        print complete when (letter[i] != "" ? " -s " letter[i] : "") " -l " name[i] \
            (shape[i] == "value" ? fish_value(i) : "") \
            " -d '" quoted(help[i]) "'"
    }
}
function fish_value(i,    o) {
    o = offer(i)
    return o == "words"       ? " -x -a '" words[i] "'" \
         : o == "files"       ? " -r -F" \
         : o == "directories" ? " -x -a '(__fish_complete_directories)'" \
         : o == "queues"      ? " -x -a '(__mqw_queues)'" : " -x"
}
