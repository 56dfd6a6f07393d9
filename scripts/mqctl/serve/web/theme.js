// theme.js - the colour scheme that the person chose, before anything is drawn
//
// A classic script in the head, so that no page flashes in the other scheme.

const scheme = localStorage.getItem("mqctl-scheme");
if (scheme) document.documentElement.dataset.scheme = scheme;
