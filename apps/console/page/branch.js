// Going on from the end of an earlier run, in the same session. The runs behind it stay, as another branch.

import { at, post } from "./api.js";
import { formDialog } from "./dialog.js";
import { h, toast } from "./dom.js";

// The runs of `steps`, each with the one it follows, and the one where the session stands; "" is the beginning.
export function runsOf(steps) {
  const runs = new Map();
  let head = "";
  for (const { event, run, number } of steps) {
    if (event === "RunOpened") runs.set(run, { run, number, follows: head });
    if (event === "RunOpened" || event === "Branched") head = run;
  }
  return { runs, head };
}

// What was said in runs of other branches is there to be read, and no model reads it.
export function markBranches(box, conversation, { steps, here, complete }) {
  // Where not all is known, a run of this line may seem to be another's.
  if (!complete) return;
  const { runs, head } = runsOf(steps.slice(0, here + 1));
  const line = new Set();
  for (let run = head; run && !line.has(run); run = runs.get(run)?.follows) line.add(run);
  for (const item of conversation.items) {
    const run = steps[item.step]?.run;
    box.shown.get(item.key)?.element.classList.toggle("other", runs.has(run) && !line.has(run));
  }
}

function opening(conversation, steps, run) {
  const said = conversation.items.find((item) => item.kind === "person" && steps[item.step]?.run === run);
  if (said) return said.text.split("\n")[0].slice(0, 80);
  // Of a run that is not in the conversation as it is shown, its step tells the prompt.
  const prompt = steps.slice(0, steps.findIndex((step) => step?.run === run) + 1).findLast((step) => step?.event === "UserSent");
  return prompt?.title || run;
}

export function branchDialog({ id, steps, present, here }, done) {
  const { runs, head } = runsOf(steps);
  const others = [...runs.keys()].filter((run) => run !== head);
  const looked = steps[here]?.run;
  const choice = h("select", { "aria-label": "Go on from", value: others.includes(looked) ? looked : (runs.get(head)?.follows ?? "") },
    h("option", { value: "" }, "The beginning"), others.map((run) => h("option", { value: run }, `The end of: ${opening(present, steps, run)}`)));
  const fields = [
    h("p", null, "The next run follows from there, in this session. Nothing is lost: you can come back to the runs behind it. What tools did stays done."),
    h("label", null, "Go on from", choice),
  ];
  formDialog("Branch", "branch", fields, "Branch", async () => {
    await post(at(id, "/branch"), { run: choice.value });
    toast("The next run follows from there");
    done();
    return true;
  });
}
