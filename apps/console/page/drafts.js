// What a person began to write, kept in this tab until it is sent.

const keyOf = (name) => `turnwheel-draft-${name}`;

// Fill `field` with the draft called `name`, and keep what is typed into it. Returns what forgets the draft.
export function keepDraft(field, name) {
  field.value = sessionStorage.getItem(keyOf(name)) ?? "";
  field.addEventListener("input", () => {
    try {
      if (field.value) sessionStorage.setItem(keyOf(name), field.value);
      else sessionStorage.removeItem(keyOf(name));
    } catch {
      // The storage of the tab is full: the text stays in its field alone.
    }
  });
  return () => sessionStorage.removeItem(keyOf(name));
}
